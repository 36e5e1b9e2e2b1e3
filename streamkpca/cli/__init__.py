"""The command line. Nothing here is part of the library's interface.

commands, options : the commands as users see them: arguments, options, help, errors of one line
watch, fit, manage, demo : their work, imported when it is to be done
events : what a monitor finds in files, as JSON, as text, and as a picture
reading : from options to tables and batches, and back: the command line that states how a file is read
models : models in files, saved while learning goes on, and what they have learned
console : facts, tables and JSON on standard output, and signals
"""
