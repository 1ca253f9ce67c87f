-- A call may be handed over to wait on a slot behind another: `behind` is the lease that the slot was taken under.

ALTER TABLE jobs ADD COLUMN behind INTEGER;
