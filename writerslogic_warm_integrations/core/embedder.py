from warm_integrations.core.embedder import *
