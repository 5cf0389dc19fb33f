-- Keys do not compress, and trying to costs more than all else of a row.
ALTER TABLE fairlane.deleted_ids ALTER keys SET STORAGE EXTERNAL;
ALTER TABLE fairlane.deleted_ids ALTER message_ids SET STORAGE EXTERNAL;
ALTER TABLE fairlane.deleted_ids ALTER transaction_ids SET STORAGE EXTERNAL;
