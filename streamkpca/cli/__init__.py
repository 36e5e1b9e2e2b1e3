"""The command line. Nothing here is part of the library's interface.

commands, options : the commands as users see them: arguments, options, help, errors of one line
watch, fit, manage, demo : their work, imported when it is to be done
events : what a monitor finds in files, as JSON, as text, and as a picture
decisions : what a look at a file has found, and the command line that states it
reading : from options to tables, new models, and batches with progress
models : models in files, saved while learning goes on
reports : what a model has learned, how well scores find anomalies, and pictures
console : facts, tables and JSON on standard output, and signals
"""
