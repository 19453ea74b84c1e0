# SPDX-License-Identifier: GPL-2.0
"""Shows stored results: the commands of scripts/bench that only read them."""

from . import compare, figures, markdown, sides, store, table


def show(command, results, output=None, as_markdown=False):
    """Run one of these commands on results; returns the exit code. output: a file, for "html"."""
    if command == "compare":
        return compare.compare(*results)
    if command == "html":
        from . import page  # pylint: disable=import-outside-toplevel # its plots take a second to import
        store.write(output, page.page(*results).encode())
    elif command == "table":
        table.print_result(*results)
    elif command == "markdown":
        print(markdown.markdown(*results), end="")
    else:
        columns, cells, styles = {"figures": figures.cells, "sides": sides.cells}[command](*results)
        if as_markdown:
            print(markdown.table_text(columns, cells), end="")
        else:
            plain = [[text.replace("**", "") for text in line] for line in cells]
            table.print_table(table.make_console(), columns, plain, styles)
    return 0


def main(name, args, _words):
    """Run one of these commands on the results that it names; returns the exit code."""
    results = [store.load(path) for path in args.results]
    if getattr(args, "write", False):
        figures.write(*results)
    return show(name, results, getattr(args, "output", None), getattr(args, "markdown", False))
