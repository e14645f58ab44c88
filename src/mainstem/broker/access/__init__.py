"""Who calls, and what they may do: principals, credentials and access rules, the same for every door."""
