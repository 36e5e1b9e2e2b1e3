"""The command line. Nothing here is part of the library's interface.

commands : the commands as users see them: arguments, help, errors of one line, exit codes
options : options that several commands share
watch : the work of watch and score, imported when it is to be done, as that of the others
fit : that of fit
manage : that of info, merge, fleet, export and warmup
demo : a simulated machine with faults, and what watch finds there
events : what a monitor finds in files, as JSON, as text, and as a picture
reading : from options to tables and batches, and back: the command line that states how a file is read
models : models in files, saved while learning goes on, and what they have learned
console : facts, tables and JSON on standard output, and signals
"""
