-- The ids at a stretch of a stream, to recognise an append that was repeated. ?1 stream, ?2 after version, ?3 how many → id
select id from events where stream = ?1 and version > ?2 order by version limit ?3;
