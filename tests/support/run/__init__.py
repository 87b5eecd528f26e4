"""How a run of the tests chooses and reports them."""
