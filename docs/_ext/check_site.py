"""Every link of the built site leads somewhere, and every picture is there: exit 1 otherwise."""

import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, path: pathlib.Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def broken(site: pathlib.Path) -> list[str]:
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            where = urllib.parse.unquote(parts.path)
            target = (path.parent / where).resolve() if where else path
            anchor = urllib.parse.unquote(parts.fragment)
            missing = not target.is_file() or target.stat().st_size == 0
            lost = target in pages and anchor and anchor not in pages[target].anchors
            if missing or lost:
                found.append(f"{path.relative_to(site)}: {link}")
    return found


if __name__ == "__main__":
    lost = broken(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(lost) or "every link leads somewhere")
    sys.exit(bool(lost))
