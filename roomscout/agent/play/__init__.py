"""A person in place of a model: the policy that waits for one, and the page that asks."""

LANGUAGES = ("en", "de")  # of the words files in the package
