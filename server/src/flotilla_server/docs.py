"""Serve `/docs`: Swagger UI without internet access.

The files of Swagger UI come from the package fastapi-swagger. None of its code is imported: this module defines the
routes and their headers. The Content-Security-Policy allows scripts, styles and requests of the same origin only. URLs
are relative, so that the page also works behind a path prefix.
"""

import html
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from fastapi import FastAPI, Response
from fastapi.responses import FileResponse, HTMLResponse

from flotilla import __version__


def _find_package(name: str = "fastapi-swagger") -> Distribution:
    """Find the package that has the files; raises ImportError at start if a server is installed without it."""
    try:
        return distribution(name)
    except PackageNotFoundError as error:
        message = f"package {name} is not installed: /docs serves its files; install the server with its dependencies"
        raise ImportError(message) from error


_PACKAGE = _find_package()
_FOLDER = Path(str(_PACKAGE.locate_file("fastapi_swagger/resources")))
_FAVICON = _FOLDER / "favicon-32x32.png"
_TYPES = {
    _FOLDER / "swagger-ui-bundle.js": "text/javascript",
    _FOLDER / "swagger-ui.css": "text/css",
    _FAVICON: "image/png",
    Path(__file__).parent / "static" / "init.js": "text/javascript",
}
VERSION = f"{__version__}-{_PACKAGE.version}"  # in the URLs of these files: browsers cache them for a year
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
    """Add `/docs`, its files, and `/favicon.ico` to an app that was created with `docs_url=None`."""
    if app.docs_url is not None:
        raise ValueError("the app already serves docs: create it with docs_url=None")
    page = _PAGE.format(title=html.escape(app.title), version=VERSION)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(page, headers=_STRICT)

    @app.get("/favicon.ico", include_in_schema=False)
    async def favicon() -> Response:
        return FileResponse(_FAVICON, media_type="image/png", headers=_SOON)

    for file, media_type in _TYPES.items():
        _add_file(app, file, media_type)


def _add_file(app: FastAPI, file: Path, media_type: str) -> None:
    @app.get(f"/docs/{VERSION}/{file.name}", include_in_schema=False)
    async def get_file() -> Response:
        return FileResponse(file, media_type=media_type, headers=_FOREVER)
