"""When everything happened that the fakes tell of."""

T0 = 1_700_000_000.0
