#!/usr/bin/env bash
# Optional: llama.cpp as the second engine, in an environment of its own (1.6 GB). Not part of .ci/run.
# llama-cpp-python has no wheel on PyPI, and its own build also compiles what nothing here calls: the library alone is
# compiled, for the CPU, from the sources in its sdist, and put beside its bindings. Needs a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
export OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
venv=.venv-llama version=0.3.36
if [ ! -f "$venv/.ready" ] || [ .ci/llama.sh -nt "$venv/.ready" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  pip=("$venv/bin/python" -m pip)
  "${pip[@]}" install --quiet --upgrade pip
  "${pip[@]}" install --quiet torch==2.13.0 'cmake>=3.21' ninja
  "${pip[@]}" download --quiet --no-deps --no-binary llama-cpp-python --dest "$venv" "llama-cpp-python==$version"
  tar -xzf "$venv/llama_cpp_python-$version.tar.gz" -C "$venv"
  source="$venv/llama_cpp_python-$version" build="$venv/build"
  "$venv/bin/cmake" -G Ninja -DCMAKE_MAKE_PROGRAM="$PWD/$venv/bin/ninja" -S "$source/vendor/llama.cpp" -B "$build" \
    -DBUILD_SHARED_LIBS=ON -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE='-O2 -DNDEBUG' \
    -DCMAKE_INSTALL_RPATH='$ORIGIN' -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON -DGGML_OPENMP=OFF -DGGML_LLAMAFILE=OFF -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF \
    -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF >"$venv/build.log"
  "$venv/bin/cmake" --build "$build" --target llama >>"$venv/build.log"
  CMAKE_ARGS='-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF' "${pip[@]}" install --quiet "$source"
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
  mkdir -p "$site/llama_cpp/lib"
  cp "$build"/bin/lib*.so* "$site/llama_cpp/lib/"
  "${pip[@]}" install --quiet --editable '.[llama]' 'peft>=0.17' 'pytest>=9'
  rm -rf "$source" "$build" "$source.tar.gz"
  touch "$venv/.ready"
fi
"$venv/bin/python" -m pytest -q -m llama tests/training/llamacpp
