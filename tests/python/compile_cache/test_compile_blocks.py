"""Tests aoticache.compile_cache(), which installs the compile cache for a block, and the log messages about records
(docs/torch-compile.md)."""
import os
import re

import pytest

from compile_runs import QUICK, fresh
from torch_scenarios import play


@pytest.mark.quick
def test_blocks_are_counted():
    play("""
        import sys, aoticache
        from aoticache._compile_cache import is_installed
        before = list(sys.meta_path)
        with aoticache.compile_cache() as first:
            assert first is True and is_installed()
            with aoticache.compile_cache() as second:
                assert second is True
            assert is_installed()
        assert not is_installed() and sys.meta_path == before
        try:
            with aoticache.compile_cache():
                raise KeyError("of the program")
        except KeyError:
            pass
        assert not is_installed()

        @aoticache.compile_cache()
        def function():
            return is_installed()
        assert function() and function() and not is_installed()

        # What install_compile_cache() has installed stays, whether it was called before the block or in it.
        aoticache.install_compile_cache()
        with aoticache.compile_cache():
            pass
        assert is_installed() and aoticache.uninstall_compile_cache()
        with aoticache.compile_cache():
            aoticache.install_compile_cache()
        assert is_installed() and aoticache.uninstall_compile_cache()

        # The end of a block leaves alone what was installed after the block's own was uninstalled.
        with aoticache.compile_cache():
            assert aoticache.uninstall_compile_cache()
            other = aoticache.compile_cache()
            other.__enter__()
        assert is_installed()
        other.__exit__(None, None, None)
        assert not is_installed()
        print("done")
    """)


@pytest.mark.quick
def test_other_options_are_refused():
    directory = fresh("block")
    play("""
        import os, sys, aoticache
        from aoticache._compile_cache import installation, is_installed
        def refused(words, **options):
            try:
                with aoticache.compile_cache(**options):
                    pass
            except aoticache.SettingsError as error:
                assert words in str(error), error
            else:
                raise AssertionError(options)
        one, other = (os.path.join(sys.argv[1], name) for name in ("one", "other"))
        settings = aoticache.configure()
        with aoticache.compile_cache(cache_dir=one, any_compiler=True):
            refused("cannot be used at the same time", cache_dir=other, any_compiler=True)
            refused("any_compiler=True", cache_dir=one)
            with aoticache.compile_cache(any_compiler=True), aoticache.compile_cache(any_compiler=True, cache_dir=one):
                pass
            assert is_installed() and installation._state.records.cache.directory == one
        assert not is_installed() and aoticache.configure() == settings
        with aoticache.compile_cache(cache_dir=other):
            assert installation._state.records.cache.directory == other
        assert not is_installed()
        print("done")
    """, [directory])


PROGRAM = """
    import sys, torch, aoticache
    x = torch.linspace(0, 1, 33)
    with aoticache.compile_cache():
        assert torch.equal(torch.compile(lambda x: x * 2 + 1)(x), x * 2 + 1)
        counts = aoticache.stats().compile["inductor-cpp"]
        print("counts", counts.hits, counts.misses)
    from torch._inductor import config
    assert aoticache.stats().compile == {} and not config.fx_graph_remote_cache
    print("done")
"""


def test_torch_logs_shows_records():
    def run(logs, name):
        return play(PROGRAM, fresh=True, TORCH_LOGS=logs, AOTICACHE_DIR=cache, TORCHINDUCTOR_CACHE_DIR=fresh(name), **QUICK)
    cache = os.path.join(fresh("logs"), "cache")
    said = run("aoticache", "first")
    assert "counts 0 1" in said, said
    for kind in ("aotautograd", "inductor-graph", "inductor-cpp"):
        assert re.search(rf"^I.*\] {kind}: miss: .*: the cache has no record$", said, re.M), said
        assert re.search(rf"^I.*\] {kind}: compiled in \d+\.\d s and stored: ", said, re.M), said
    assert ": hit: " not in said
    said = run("+aoticache", "second")
    assert "counts 1 0" in said and ": miss: " not in said, said
    for kind in ("aotautograd", "inductor-graph", "inductor-cpp"):
        assert re.search(rf"^V.*\] {kind}: hit: ", said, re.M), said
    said = run("aoticache", "third")
    assert "counts 1 0" in said and ": hit: " not in said and ": miss: " not in said, said
