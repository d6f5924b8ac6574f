"""What a page must not get away with."""
from __future__ import annotations

import pytest

from tests.documentation.pages import anchors, blocks, links
from tests.documentation.parse_commands import refusal
from tests.documentation.run_page import run

PAGE = """# A page

## Two words, and a `name`
See [below](#two-words-and-a-name) and [`code`](other.md#there), not `[this](one.md)`.

<!-- setup
number = 20
-->
<!-- run with "+ 1" as "+ 2" -->
```python
print(number + 1)
print("done in", 0.25, "s")
```
```text
22
done in ... s
```

<!-- not run: it fails -->
```python
raise SystemExit
```

```python
# page_module.py
value = 3
```

```python
from page_module import value
print(value)
```
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text):
        path = tmp_path / "page.md"
        path.write_text(text)
        return path

    return write


def test_a_page_that_is_right(page):
    run(page(PAGE))


@pytest.mark.parametrize("old, new, message", [
    ("22\n", "23\n", "but this is printed"),
    ("done in ... s\n```", "done in ... minutes\n```", "but this is printed"),
    ('"+ 1" as', '"+ 3" as', "is not in the block"),
    ("<!-- not run: it fails -->\n", "", ""),
    ("number = 20", "other = 20", "number"),
])
def test_a_page_that_is_wrong(page, old, new, message):
    assert old in PAGE
    with pytest.raises((AssertionError, NameError, SystemExit), match=message):
        run(page(PAGE.replace(old, new)))


def test_a_command_that_fails(page):
    with pytest.raises(AssertionError, match="ends with status 2"):
        run(page("```sh\nsoybean-mx topology nothing\n```\n"))
    with pytest.raises(AssertionError, match="ends with status"):
        run(page("```sh\npython missing.py\n```\n"))


def test_what_a_page_consists_of(page):
    path = page(PAGE)
    assert [block.language for block in blocks(path)] == ["python", "text", "python", "python", "python"]
    assert blocks(path)[2].not_run == "it fails" and blocks(path)[3].is_file == "page_module.py"
    assert links(path) == ["#two-words-and-a-name", "other.md#there"]
    assert set(anchors(path)) == {"a-page", "two-words-and-a-name"}


@pytest.mark.parametrize("command, refused", [
    ("soybean-mx plan alexnet --devices 8", ""),
    ("soybean-mx plan alexnet --device-count 8", "--device-count"),
    ("soybean-mx plane alexnet", "plane"),
    ("python scripts/bench_train.py --model alexnet", ""),
    ("python scripts/bench_train.py --models alexnet", "--models"),
])
def test_arguments_that_a_parser_refuses(command, refused):
    found = refusal(command.split())
    assert refused in found and bool(found) == bool(refused)
