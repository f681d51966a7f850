-- Whoever wants a table for itself makes everybody wait behind it: not for longer than this.
set local lock_timeout = '5s';
