"""How far runs are: the values, and the displays in terminals, notebooks and logs."""
