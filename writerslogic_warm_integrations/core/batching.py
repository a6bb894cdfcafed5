from warm_integrations.core.batching import *
