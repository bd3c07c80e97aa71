"""A file that is one JSON object, read as a whole."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

from traces.errors import TraceError
from traces.reading import pieces

_PIECE_BYTES = 16 << 20


def document_of(file: Path) -> dict[str, Any]:
    """The object; numbers with a fraction as they are written, NaN and infinities as None.

    Raises TraceError when the file is none.
    """
    try:
        text = b"".join(pieces(file, _PIECE_BYTES)).decode("utf-8")
        value = json.loads(text, parse_float=Decimal, parse_constant=lambda _: None)
    except UnicodeDecodeError as error:
        raise TraceError(f"{file} is not UTF-8 text: save it as UTF-8") from error
    except (ValueError, ArithmeticError, RecursionError) as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise TraceError(f"{file} is not one whole JSON object{where}: copy or write it again") from error
    if not isinstance(value, dict):
        raise TraceError(f"{file} is not one JSON object: name the file that the tool wrote")
    return value
