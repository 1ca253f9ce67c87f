"""Real servers, workers and scripts for tests: started, frozen, cut off, killed, and cleared away by pid."""
