"""What the command line is made of; nothing here is part of the library's interface."""
