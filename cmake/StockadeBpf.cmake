# add_bpf_object(<target> SOURCES files-or-globs... [NAME skeleton] [DEFINES names...])
#
# Compiles each .bpf.c, links them into <build>/bpf/<skeleton>.bpf.o and generates the skeleton (default name: stockade).
# <target> is an INTERFACE library: linking it makes #include "bpf/<skeleton>.skel.h" work and orders the build. Its property
# BPF_OBJECT holds the path of the linked object. SOURCES are looked up in the calling directory, then from the root.
find_program(BPF_CLANG NAMES clang-19 REQUIRED)
find_program(BPFTOOL NAMES bpftool PATHS /usr/sbin /usr/local/sbin REQUIRED)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64")
    set(BPF_ARCH x86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(BPF_ARCH arm64)
else()
    message(FATAL_ERROR "Stockade is built for x86_64 and arm64, not ${CMAKE_SYSTEM_PROCESSOR}")
endif()

function(add_bpf_object target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "NAME" "SOURCES;DEFINES")
    if(NOT arg_NAME)
        set(arg_NAME stockade)
    endif()
    set(sources)
    foreach(pattern IN LISTS arg_SOURCES)
        file(GLOB found CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${pattern})
        if(NOT found)
            file(GLOB found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${pattern})
        endif()
        if(NOT found AND IS_ABSOLUTE ${pattern})
            file(GLOB found CONFIGURE_DEPENDS ${pattern})
        endif()
        list(APPEND sources ${found})
    endforeach()
    if(NOT sources)
        message(FATAL_ERROR "add_bpf_object(${target}): no file matches ${arg_SOURCES}")
    endif()
    list(TRANSFORM arg_DEFINES PREPEND -D)

    set(dir ${CMAKE_BINARY_DIR}/bpf/${arg_NAME})
    set(linked ${CMAKE_BINARY_DIR}/bpf/${arg_NAME}.bpf.o)
    set(skeleton ${CMAKE_BINARY_DIR}/gen/bpf/${arg_NAME}.skel.h)
    file(MAKE_DIRECTORY ${dir} ${CMAKE_BINARY_DIR}/gen/bpf)
    set(objects)
    foreach(source IN LISTS sources)
        file(RELATIVE_PATH rel ${PROJECT_SOURCE_DIR} ${source})
        string(REPLACE "/" "_" stem ${rel})
        string(REGEX REPLACE "\\.c$" "" stem ${stem})
        set(object ${dir}/${stem}.o)
        # -O2 -g: the verifier needs optimised code, CO-RE needs BTF. v3: 32-bit ALU and jumps, known to every kernel we support.
        # The multiarch directory holds asm/types.h, which clang does not look for when the target is bpf.
        add_custom_command(
            OUTPUT ${object}
            COMMAND ${BPF_CLANG} -O2 -g -mcpu=v3 -target bpf -std=gnu17 -D__TARGET_ARCH_${BPF_ARCH} ${arg_DEFINES}
                    -Wall -Wextra -Werror -Wno-unused-parameter ${STOCKADE_PREFIX_MAP}
                    -I${PROJECT_SOURCE_DIR} -idirafter /usr/include/${CMAKE_CXX_LIBRARY_ARCHITECTURE}
                    -MD -MF ${object}.d -MT ${object} -c ${source} -o ${object}
            DEPENDS ${source}
            DEPFILE ${object}.d
            COMMENT "bpf ${rel}"
            VERBATIM)
        list(APPEND objects ${object})
    endforeach()
    add_custom_command(
        OUTPUT ${linked}
        COMMAND ${BPFTOOL} gen object ${linked}.tmp ${objects}
        COMMAND ${CMAKE_COMMAND} -E rename ${linked}.tmp ${linked}
        DEPENDS ${objects}
        COMMENT "bpf link ${arg_NAME}.bpf.o"
        VERBATIM)
    # To a temporary file first: a bpftool that fails midway must not leave a half header that the next build takes for done.
    add_custom_command(
        OUTPUT ${skeleton}
        COMMAND sh -c "exec \"$1\" gen skeleton \"$2\" name \"$3\" >\"$4.tmp\"" sh ${BPFTOOL} ${linked} ${arg_NAME} ${skeleton}
        COMMAND ${CMAKE_COMMAND} -E rename ${skeleton}.tmp ${skeleton}
        DEPENDS ${linked}
        COMMENT "bpf skeleton ${arg_NAME}.skel.h"
        VERBATIM)
    add_custom_target(${target}_generated DEPENDS ${skeleton} ${linked})
    add_library(${target} INTERFACE)
    add_dependencies(${target} ${target}_generated)
    target_include_directories(${target} SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/gen)
    target_link_libraries(${target} INTERFACE dep::bpf)
    set_target_properties(${target} PROPERTIES BPF_OBJECT ${linked})
endfunction()
