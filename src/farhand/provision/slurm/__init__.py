"""Slurm, through its own commands, here or on a login node; `script` and `parsing` are pure."""
