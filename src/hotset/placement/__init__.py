"""Where data is kept: budgets, and the plan that says what will be done and why."""
