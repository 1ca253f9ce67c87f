"""Real services that tests start for themselves."""
