-- Whether an id was pushed before is a look at the index for each, however many ids a partition knows.
SELECT 1;
