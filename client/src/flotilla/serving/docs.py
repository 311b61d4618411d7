"""`/docs`: Swagger UI with assets that this server has itself, so that it works without the internet.

Nothing on the page comes from anywhere else, and the page says so to the browser: scripts, styles and requests are
allowed to this server alone. Addresses are relative, so that it works behind a prefix, too.
"""

import html
from pathlib import Path

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse, HTMLResponse

VERSION = "5.34.1"
_FOLDER = Path(__file__).parent / "static"
_TYPES = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "init.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}
_FOREVER = {"cache-control": "public, max-age=31536000, immutable", "x-content-type-options": "nosniff"}
_SOON = {"cache-control": "public, max-age=3600", "x-content-type-options": "nosniff"}
_STRICT = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_PAGE = """<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>{title}</title>
    <link rel="icon" type="image/png" href="docs/{version}/favicon-32x32.png">
    <link rel="stylesheet" href="docs/{version}/swagger-ui.css">
  </head>
  <body>
    <div id="swagger-ui"></div>
    <script src="docs/{version}/swagger-ui-bundle.js"></script>
    <script src="docs/{version}/init.js"></script>
  </body>
</html>
"""


def add_docs(app: FastAPI) -> None:
    """Serve `/docs`, what it needs, and `/favicon.ico`. The app is made with `docs_url=None, redoc_url=None`."""
    if app.docs_url is not None:
        raise ValueError("the app serves docs of its own; make it with docs_url=None")
    page = _PAGE.format(title=html.escape(app.title), version=VERSION)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page, headers=_STRICT)

    @app.get("/favicon.ico", include_in_schema=False)
    async def favicon() -> Response:
        return FileResponse(_FOLDER / "favicon-32x32.png", media_type="image/png", headers=_SOON)

    for name, kind in _TYPES.items():
        _add_asset(app, name, kind)


def _add_asset(app: FastAPI, name: str, kind: str) -> None:
    @app.get(f"/docs/{VERSION}/{name}", include_in_schema=False)
    async def asset() -> Response:
        return FileResponse(_FOLDER / name, media_type=kind, headers=_FOREVER)
