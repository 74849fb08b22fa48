"""The passes of the compiler, one file each. `graphc.compiler.pipeline` lists them in order."""
