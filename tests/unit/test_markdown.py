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


@pytest.mark.parametrize("page", ["<!-- not run: why -->\ntext\n```sql\n```", "```sql\nSELECT 1"])
def test_a_page_that_would_hide_a_block_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="line "):
        blocks(page)


def test_a_comment_without_a_reason_excludes_nothing() -> None:
    [block] = blocks("<!-- not run: -->\n```sql\n```")
    assert not block.not_run
