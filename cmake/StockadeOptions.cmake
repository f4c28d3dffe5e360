# Compiler flags shared by all rooms, and the sanitizer presets.
option(STOCKADE_WERROR "Warnings are errors" ON)
option(STOCKADE_FUZZ "Build *_fuzz.cc with libFuzzer (needs clang)" OFF)
set(STOCKADE_SANITIZE "" CACHE STRING "Value of -fsanitize= for all C and C++ code, e.g. address,undefined")

find_program(CCACHE ccache)
if(CCACHE)
    set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/ccache.sh ${CCACHE})
endif()

# Paths of the build machine stay out of the binaries, and ccache hits across checkouts.
set(STOCKADE_PREFIX_MAP -ffile-prefix-map=${CMAKE_SOURCE_DIR}=. -ffile-prefix-map=${CMAKE_BINARY_DIR}=build)

# Own code is compiled with these; generated code (protobuf) is not.
add_library(stockade_flags INTERFACE)
# -pthread defines a macro, in which precompiled headers and their users have to agree.
set(has_pch "$<OR:$<BOOL:$<TARGET_PROPERTY:PRECOMPILE_HEADERS>>,$<BOOL:$<TARGET_PROPERTY:PRECOMPILE_HEADERS_REUSE_FROM>>>")
target_compile_options(stockade_flags INTERFACE -Wall -Wextra $<${has_pch}:-pthread> ${STOCKADE_PREFIX_MAP})
if(STOCKADE_WERROR)
    target_compile_options(stockade_flags INTERFACE -Werror)
endif()

# RelWithDebInfo must not define NDEBUG: CHECK and assert are for our own bugs, and the tests run in this preset.
# -O1 -g1: a cold build takes a third less time than with -O2 -g, and back traces keep their lines.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g1")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
# What is shipped keeps its checks too.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
# GCC 12 sees overlaps where a string literal is put before a std::string (GCC bug 105651).
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(stockade_flags INTERFACE -Wno-restrict)
endif()

if(STOCKADE_SANITIZE)
    # Stacks keep their frames; -g for what a sanitizer prints.
    set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g")
    set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g")
    add_compile_options(-fsanitize=${STOCKADE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${STOCKADE_SANITIZE})
endif()
if(STOCKADE_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
        message(FATAL_ERROR "STOCKADE_FUZZ needs clang++-19 (use --preset fuzz)")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
