"""Programs for the development of Mainstem, not part of a release. Run them from the root of the checkout."""
