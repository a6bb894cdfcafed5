"""What goes wrong, in words for the person who uses the page."""


class Problem(Exception):
    """Something did not work. Its text is a plain sentence that ends with what to do next."""
