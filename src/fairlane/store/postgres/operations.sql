-- name: enqueue (steps)
SELECT * FROM fairlane.enqueue_operations($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15);

-- name: begin
SELECT * FROM fairlane.begin_operations($1, $2, $3, $4);

-- name: finish (steps)
SELECT fairlane.finish_operations($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);
