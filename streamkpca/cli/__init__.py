"""The command line. Nothing here is part of the library's interface.

main : the command and its subcommands
commands, plot_commands : the subcommands as users see them: arguments, options, help
learn, query, manage, plot, completion : their work, imported when it is to be done
options : options that several commands share; those of the model come from the table in `stream.parameters`
pipeline : from tables to a model, or through a model to results
models : models in files: read, checked, merged, exported, and saved while learning goes on
results : rows of output, as CSV, JSON lines, Parquet or Arrow
reports : what a model has learned and how rows scored, for people and as JSON
pictures : figures of rows and models
demo : a simulated plant, and how well its faults are found
console : standard output and error, progress, errors of one line
signals : Ctrl-C, SIGTERM and SIGHUP
wording : the library's errors in the language of the command
tables : files of rows, read in chunks
"""
