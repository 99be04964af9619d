"""The stub of the native module lists exactly what the module has."""

import ast
import importlib.resources

from kvdrive import _native


def test_the_stub_names_what_the_native_module_has():
    stub = ast.parse((importlib.resources.files("kvdrive") / "_native.pyi").read_text())
    assert (importlib.resources.files("kvdrive") / "py.typed").is_file()
    functions = {node.name for node in stub.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    there = {name for name in vars(_native) if not name.startswith("_")}
    assert functions | set(classes) | {"REVISION", "VERSION"} == there
    for name, node in classes.items():
        stubbed = {one.name for one in node.body if isinstance(one, ast.FunctionDef)} - {"__new__", "__buffer__"}
        public = {one for one in vars(getattr(_native, name)) if not one.startswith("_")}
        assert public <= stubbed, f"{name}: {public - stubbed} are not in the stub"
        assert all(hasattr(getattr(_native, name), one) for one in stubbed), name
