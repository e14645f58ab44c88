"""Programs for those who work on Mainstem; no release contains them. Run them from the root of the checkout."""
