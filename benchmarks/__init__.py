"""Speeds of farhand on this machine, each beside a reference measured in the same run."""
