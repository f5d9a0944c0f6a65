"""How documentation is read by the tests that run it."""

from __future__ import annotations

import pytest

from tests.support.markdown import Block, blocks

PAGE = """# Title

```sql
SELECT 1;
```
Text with `code` and ``` in the middle.

<!-- not run: it needs a bucket -->

```python title
print("a")

print("b")
```

- in a list:

  ~~~bash
  make test
  ```
  ~~~
````
```sql
````
"""


def test_blocks_come_in_order_with_their_languages() -> None:
    assert blocks(PAGE) == [
        Block("sql", "SELECT 1;", 4),
        Block("python", 'print("a")\n\nprint("b")', 11, not_run="it needs a bucket"),
        Block("bash", "make test\n```", 19),
        Block("", "```sql", 23),
    ]


def test_a_reason_is_for_the_next_block_alone() -> None:
    first, second = blocks("<!-- not run: why -->\n```sql\n```\n```sql\n```")
    assert (first.not_run, second.not_run) == ("why", "")


@pytest.mark.parametrize(
    "page",
    [
        "<!-- not run: why -->\ntext\n```sql\n```",
        "```sql\nSELECT 1",
        "<!-- output -->\n```text\n```",
        "```sql\n```\ntext\n<!-- output -->\n```text\n```",
        "```sql\n```\n<!-- output -->\ntext",
    ],
)
def test_a_page_that_would_hide_a_block_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="line "):
        blocks(page)


def test_a_comment_without_a_reason_excludes_nothing() -> None:
    [block] = blocks("<!-- not run: -->\n```sql\n```")
    assert not block.not_run


def test_output_belongs_to_the_block_before_it() -> None:
    first, second = blocks("```sql\nA\n```\n\n<!-- output -->\n```text\n1\n```\n```sql\nB\n```")
    assert (first.text, first.output) == ("A", "1")
    assert (second.text, second.output) == ("B", None)


@pytest.mark.parametrize(
    ("said", "printed", "same"),
    [
        ("a\nb", "a  \nb\n", True),
        ("a\nb", "a", False),
        ("a", "a\nb", False),
        ("took … ms (all)", "took 17 ms (all)", True),
        ("took … ms", "took 17 s", False),
        ("a.c", "abc", False),
    ],
)
def test_output_is_compared_line_by_line(said: str, printed: str, same: bool) -> None:
    assert Block("sql", "", 1, output=said).prints(printed) is same
