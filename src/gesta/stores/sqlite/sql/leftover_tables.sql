-- What a swap replaced, or a rebuild that was interrupted left. → name
select name from sqlite_schema where type = 'table' and (name glob 'requests_shadow_*' or name = 'requests_gone');
