"""The system tables, `<catalog>.system.<table>`: what a lake is and was, as rows that SQL selects and joins."""
