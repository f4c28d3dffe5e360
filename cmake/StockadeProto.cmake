# stockade_proto(<target> files.proto... [DEPS targets...])
#
# A static library of the generated code, headers included by the .proto's path from the root: #include "userspace/model/event.pb.h".
# The .proto files import one another the same way: import "userspace/model/options.proto";
function(stockade_proto target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPS")
    set(gen ${CMAKE_BINARY_DIR}/gen)
    set(generated)
    foreach(file IN LISTS arg_UNPARSED_ARGUMENTS)
        get_filename_component(proto ${file} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
        file(RELATIVE_PATH rel ${PROJECT_SOURCE_DIR} ${proto})
        string(REGEX REPLACE "\\.proto$" "" stem ${rel})
        file(MAKE_DIRECTORY ${gen})
        add_custom_command(
            OUTPUT ${gen}/${stem}.pb.cc ${gen}/${stem}.pb.h
            COMMAND protobuf::protoc -I${PROJECT_SOURCE_DIR} -I/usr/include --cpp_out=${gen}
                    --dependency_out=${gen}/${stem}.pb.d ${proto}
            # protoc has every process parse the descriptors, docs of all fields included, before main: 0.4 ms of each start.
            # They are found all the same by the first who asks a message for its own (not by name in the generated pool).
            COMMAND sed -i /AddDescriptorsRunner/d ${gen}/${stem}.pb.cc
            DEPENDS ${proto}
            DEPFILE ${gen}/${stem}.pb.d
            COMMENT "protoc ${rel}"
            VERBATIM)
        list(APPEND generated ${gen}/${stem}.pb.cc ${gen}/${stem}.pb.h)
    endforeach()
    add_library(${target} STATIC ${generated})
    # SYSTEM: warnings of generated headers are not ours to fix.
    target_include_directories(${target} SYSTEM PUBLIC ${gen})
    target_compile_options(${target} PRIVATE -w -pthread ${STOCKADE_PREFIX_MAP})
    target_link_libraries(${target} PUBLIC ${arg_DEPS} protobuf::libprotobuf)
    stockade_pch(${target} base)
endfunction()
