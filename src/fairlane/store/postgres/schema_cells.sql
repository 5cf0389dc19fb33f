-- Cells: a store may have several, each with all tables. Cell 0 is the home, and the directory is its own.

-- The home that this cell belongs to, and its number there. Empty while the store has never had a second cell.
CREATE TABLE fairlane.identity (one boolean PRIMARY KEY DEFAULT true CHECK (one), home uuid NOT NULL, cell int NOT NULL);

-- The cells of this home, with the home itself. Empty while it has no other. `url` is NULL in the database of the home.
CREATE TABLE fairlane.cells (cell int PRIMARY KEY, schema text NOT NULL, url text, state text NOT NULL);

-- Queues that are not in this cell, by the names of tenant and queue. A row stays when its queue is deleted.
CREATE TABLE fairlane.placed (tenant text NOT NULL, queue text COLLATE "C" NOT NULL, cell int NOT NULL, PRIMARY KEY (tenant, queue));

-- Queues that are being moved to another cell. Each mover has a higher `term` than the one before.
CREATE TABLE fairlane.moves (
    queue_id bigint PRIMARY KEY, tenant text NOT NULL, queue text COLLATE "C" NOT NULL, source int NOT NULL, target int NOT NULL,
    term bigint GENERATED ALWAYS AS IDENTITY, began_at timestamptz NOT NULL,
    copied bigint NOT NULL DEFAULT 0, total bigint NOT NULL DEFAULT 0  -- Messages.
);

-- Queues and groups that are not in the cell that their ids name. The id of a group is negative here, because queues have the same
-- numbers. `arrived` is false while no cell has them.
CREATE TABLE fairlane.moved (id bigint PRIMARY KEY, queue_id bigint NOT NULL, cell int NOT NULL, arrived boolean NOT NULL);

-- In the source and in the target of a move: the mover that may change rows of the queue.
CREATE TABLE fairlane.moving (queue_id bigint PRIMARY KEY, term bigint NOT NULL);

-- In the target: the rows that brokers would act on, as JSON, until the queue has left the source.
CREATE TABLE fairlane.arriving (
    queue_id bigint NOT NULL, table_name text NOT NULL, chunk bigint NOT NULL, rows jsonb NOT NULL, PRIMARY KEY (queue_id, table_name, chunk)
);
