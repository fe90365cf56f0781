"""Makes the source archive and a wheel from it; tries the wheel where only its dependencies are at hand."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
TRIAL = ROOT / "build" / "trial"

SOLVE = """
import fusionopt, numpy as np
assert "trial" in fusionopt.__file__, fusionopt.__file__
loss = fusionopt.SquaredDistance(np.array([[0.0], [2.0]]))
result = fusionopt.solve(fusionopt.FusionProblem(loss, lam=0.5))
assert result.status == "optimal" and np.allclose(result.x, [[0.5], [1.5]]), result.x
print(fusionopt.__version__, result.status, result.x.ravel())
"""


def only(found: list[Path]) -> Path:
    assert len(found) == 1, found
    return found[0]


def check_archive(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "fusionopt/py.typed"}
    sources = {file.relative_to(ROOT).as_posix() for file in (ROOT / "csrc").rglob("*.[ch]pp")}
    missing = (wanted | sources) - names
    assert not missing, f"the source archive lacks {sorted(missing)}"
    compiled = [name for name in names if name.endswith(".so")]
    assert not compiled, f"the source archive holds {compiled}"


def check_wheel(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert [name for name in names if name.endswith(".so")] == [f"fusionopt/_core{suffix}"], names
    assert any(name.endswith("licenses/LICENSE") for name in names), names
    written = {
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "fusionopt").rglob("*")
        if file.suffix in (".py", ".pyi", ".typed", ".html")
    }
    assert written <= set(names), f"the wheel lacks {sorted(written - set(names))}"
    foreign = {name.split("/")[0] for name in names if not name.split("/")[0].startswith("fusionopt")}
    assert not foreign, f"the wheel would put {sorted(foreign)} beside the package"


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    shutil.rmtree(TRIAL, ignore_errors=True)
    DIST.mkdir()
    backend = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"][
        "build-backend"
    ]
    subprocess.run(
        [sys.executable, "-c", f"import {backend} as b; b.build_sdist({str(DIST)!r})"], check=True, cwd=ROOT
    )
    sdist = only(list(DIST.glob("*.tar.gz")))
    check_archive(sdist)

    pip = [sys.executable, "-m", "pip", "-q"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(DIST), str(sdist)]
    subprocess.run([*pip, *build], check=True)
    wheel = only(list(DIST.glob("*.whl")))
    check_wheel(wheel)

    # A .pth file brings the dependencies from this environment, but not its editable install.
    venv.create(TRIAL, with_pip=False)
    python = TRIAL / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(TRIAL), "platbase": str(TRIAL)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([python, "-c", SOLVE], check=True, cwd=TRIAL, env=outside)
    table = ROOT / "examples" / "data" / "wine.csv"
    subprocess.run(
        [python, "-m", "fusionopt", "info", table],
        check=True,
        cwd=TRIAL,
        env=outside,
        stdout=subprocess.DEVNULL,
    )
    print(f"{sdist.relative_to(ROOT)}\n{wheel.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
