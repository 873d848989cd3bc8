"""Badges, citation, workflow and templates agree with the project."""

import re
import tomllib

import yaml

from tests.config.configs import SYSTEMS
from tests.docs.tables import REPOSITORY

GITHUB = REPOSITORY / ".github"


def test_badges_are_true() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    for python in re.findall(r"badge/python-(\S+?)-blue", readme)[0].split("%20%7C%20"):
        assert f"Programming Language :: Python :: {python}" in project
    assert f"verl=={re.findall(r'badge/verl-([0-9.]+)-', readme)[0]}" in project
    assert 'license = "Apache-2.0"' in project and "badge/license-Apache--2.0-" in readme


def test_the_citation_has_the_project_s_version_and_the_papers() -> None:
    citation = (REPOSITORY / "CITATION.cff").read_text(encoding="utf-8")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = project["version"]
    assert f"\nversion: {version}\n" in citation
    page = (REPOSITORY / "docs" / "citation.md").read_text(encoding="utf-8")
    assert f"{{{version}}}" in page
    papers = re.findall(r"arXiv:(\d+\.\d+)", citation)
    assert len(papers) == len(SYSTEMS) and set(papers) == set(re.findall(r"arXiv:(\d+\.\d+)", page))
    for paper in papers:
        assert f"https://arxiv.org/abs/{paper}" in (REPOSITORY / "README.md").read_text(encoding="utf-8")


def test_the_workflow_runs_what_ci_runs() -> None:
    """The parts of .ci/run as jobs, the last one with all whole jobs, and the documentation."""
    jobs = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    run = [step["run"].strip() for job in jobs.values() for step in job["steps"] if "run" in step]
    parts = re.findall(
        r"^bash run_tests\.sh.*$", (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE
    )
    *first, last = parts
    assert len(first) == 2 and set(first) <= set(run)
    whole, *files = last.split(" tests/")
    assert whole in run and files and all((REPOSITORY / "tests" / name).is_file() for name in files)
    assert "mkdocs build --strict" in run


def test_templates_ask_for_something() -> None:
    templates = [path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert {path.stem for path in templates} == {"bug", "feature", "new_system"}
    for path in templates:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert form["name"] and form["description"]
        assert any(part.get("validations", {}).get("required") for part in form["body"])
        assert len({part["id"] for part in form["body"]}) == len(form["body"])


def test_hooks_run_the_environment_s_own_tools() -> None:
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    (local,) = [repo["hooks"] for repo in hooks if repo["repo"] == "local"]
    assert [hook["id"] for hook in local] == ["ruff", "ruff-format", "mypy"]
    assert all(hook["entry"].startswith(".venv/bin/python -m ") for hook in local)
