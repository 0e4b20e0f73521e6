"""The compiled half of timelines: Perfetto's protobuf packets to bytes and back.

A trace is a chain of packets; every number is a varint (seven bits a byte, lowest first) and every
message or string has its length in front. The numbers of the fields are those of Perfetto's
`trace.proto`, `trace_packet.proto`, `track_event.proto` and `track_descriptor.proto`.
"""
