"""Reading a log: tables of any kind, projections of their columns, checks of their lines."""
