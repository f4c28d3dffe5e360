#!/bin/sh
# ccache.sh CCACHE COMPILER ARG...   the compiler's launcher
#
# GCC reads the precompiled header that lies beside its source, also when ccache asks for the preprocessed text of that
# very source to see whether it has changed: the old one then says that nothing has. So it goes first.
for arg; do
    case $arg in *.gch) rm -f "$arg" ;; esac
done
# Without this sloppiness ccache leaves alone what is compiled with precompiled headers.
CCACHE_SLOPPINESS=pch_defines,time_macros exec "$@"
