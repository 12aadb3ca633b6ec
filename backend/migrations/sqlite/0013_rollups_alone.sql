-- The rollups answer what these tables did.
DROP TABLE packed_minutes;
DROP TABLE packed_sums;
DROP TABLE packed_workspaces;
