//! SONiC.
