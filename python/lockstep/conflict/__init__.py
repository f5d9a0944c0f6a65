"""Which transactions conflict. Pure rules over values: nothing here does I/O, and each rule has its table of cases."""
