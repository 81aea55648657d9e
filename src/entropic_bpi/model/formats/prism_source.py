"""Models in the PRISM language, built by Storm (``stormpy``, extra ``prism``)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from entropic_bpi.errors import InvalidModelError
from entropic_bpi.model.formats import drn

_DIGITS = 17  # with which a double is read back as it was


def read(path: Path, reward: str | None = None) -> dict[str, Any]:
    try:
        import stormpy
        from stormpy.io import DirectEncodingExporterOptions, export_to_drn
    except ImportError:
        raise InvalidModelError(
            f"{path} is in the PRISM language, which needs stormpy 2: pip install 'entropic-bpi[prism]'; or export it with "
            "prism MODEL -exportmodel x.tra,lab,rews or storm --exportbuild x.drn"
        ) from None
    options = DirectEncodingExporterOptions()
    options.output_precision = _DIGITS
    with TemporaryDirectory() as folder:
        built = Path(folder, path.with_suffix(".drn").name)
        try:
            program = stormpy.parse_prism_program(str(path))
            model = stormpy.build_model(program, options=stormpy.BuilderOptions(build_full=True))
            export_to_drn(model, str(built), options=options)
        except Exception as error:  # whatever Storm says of a file that it cannot read
            raise InvalidModelError(f"{path}: {' '.join(str(error).split())}") from None
        try:
            return drn.read(built, reward)
        except InvalidModelError as error:
            raise InvalidModelError(str(error).replace(str(built), str(path))) from None
