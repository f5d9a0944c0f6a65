"""The picture and the table of what it costs say what docs/benchmarks.md says."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from project.render_costs import LEFT, RIGHT, Cost, costs, svg, table

HEAD = "| | Lockstep, ms | plain Delta, ms | ratio | bound | kept |\n|---|---|---|---|---|---|\n"
PAGE = f"""# Benchmarks

### With few partitions

{HEAD}| a read | 90 (80-99) | 100 (90-120) | **0.90** (0.80-1.05) | 1.05 | yes |
| a <write> | 300 (200-400) | 100 (90-120) | **3.00** (2.00-4.00) | 1.05 | **no** |

### With the defaults

{HEAD}| a read | 90 (80-99) | 100 (90-120) | **0.50** (0.40-0.60) | 1.05 | yes |
| a <write> | 300 (200-400) | 100 (90-120) | **1.00** (0.90-1.10) | 1.05 | yes |

## Others

| a read | 1 (1-1) | 1 (1-1) | **9.00** (9.00-9.00) | 1.05 | **no** |
"""
SVG = "{http://www.w3.org/2000/svg}"


def test_figures_are_those_of_the_page() -> None:
    assert costs(PAGE) == {
        "few partitions": [Cost("a read", 0.8, 0.9, 1.05), Cost("a <write>", 2, 3, 4)],
        "the defaults": [Cost("a read", 0.4, 0.5, 0.6), Cost("a <write>", 0.9, 1, 1.1)],
    }


def test_the_table_has_a_row_a_work_and_a_column_a_setting() -> None:
    assert table(PAGE).splitlines() == [
        "| Lockstep / plain Delta | few partitions | the defaults |",
        "|---|---|---|",
        "| a read | 0.90 (0.80\u20131.05) | 0.50 (0.40\u20130.60) |",
        "| a <write> | 3.00 (2.00\u20134.00) | 1.00 (0.90\u20131.10) |",
    ]


def test_the_picture_has_each_median_in_its_place() -> None:
    drawn = ET.fromstring(svg(PAGE))
    medians = [float(dot.attrib["cx"]) for dot in drawn.iter(f"{SVG}circle") if float(dot.attrib["cx"]) >= LEFT]
    scale = (RIGHT - LEFT) / 4
    assert medians == pytest.approx([LEFT + scale * ratio for ratio in (0.9, 0.5, 3, 1)], abs=0.1)
    assert [text.text for text in drawn.iter(f"{SVG}text")].count("a <write>") == 1


@pytest.mark.parametrize("page", ["# Nothing\n", PAGE.replace("| a read | 90", "| another read | 90", 1)])
def test_a_page_without_figures_or_with_others_a_setting_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"docs/benchmarks\.md"):
        costs(page)
