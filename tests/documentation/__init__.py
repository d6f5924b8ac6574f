"""Every page of the documentation is tested: its code blocks run, its links lead somewhere."""
